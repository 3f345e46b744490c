"""Tables that no constant was chosen on: the defaults against the opponent tuned on their test data."""
