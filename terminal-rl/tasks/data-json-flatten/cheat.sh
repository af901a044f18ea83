#!/bin/bash
cd /app && printf 'id,name,city\n2,Lovelace, Ada,London\n7,Zoe,Bonn\n' > users.csv
