"""A fleet: the same questions to many nodes, small answers, and what follows from comparing them."""
