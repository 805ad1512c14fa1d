"""JUDGE: which versions could stand on a machine, under a contract."""
