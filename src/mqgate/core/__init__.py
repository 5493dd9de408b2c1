"""Terms and rules as pure functions and values. Standard library only; instants are passed in."""
