"""Predict a job's memory, and search for the smallest change that makes it fit."""
