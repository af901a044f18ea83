"""On-policy distillation as a method: conversion of judged turns to samples, and the loss."""
