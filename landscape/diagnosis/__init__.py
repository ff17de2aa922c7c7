"""What is wrong with a run or its callback_fn, found before hours are spent on measuring."""
