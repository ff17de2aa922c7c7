"""What a run can tell, as answers in words: each number with its interval, its arrays and its formula."""
