"""What all pictures share: the sheet, its paper and type, the marks of runs and of what is missing, the words."""
