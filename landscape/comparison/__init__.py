"""Which of several recipes ends in the flatter minimum: lines through many networks, and an answer with an interval."""
