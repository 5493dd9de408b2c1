"""Applications of people, and the decisions on them."""
