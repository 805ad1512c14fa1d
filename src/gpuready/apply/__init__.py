"""ACT: resolve, fetch, install. What is planned is made so, whole or not at all."""
