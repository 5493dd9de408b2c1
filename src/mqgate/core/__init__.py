"""The vocabulary and the rules: pure, standard library only, instants are passed in."""
