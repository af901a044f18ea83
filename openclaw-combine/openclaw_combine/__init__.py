"""Binary RL and distillation combined, and the hybrid: conversion of judged turns to samples, and the losses."""
