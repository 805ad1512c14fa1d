"""JUDGE: choose the versions for a machine under a contract."""
