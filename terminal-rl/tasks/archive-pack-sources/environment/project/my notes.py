# a name with a blank
