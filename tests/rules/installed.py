"""Packages of an environment, made of plain values."""

from __future__ import annotations


def row(cudart="12", abi="cxx11", missing=(), **more):
    return {"file": "/site/x.so", "cudart": cudart, "torch": True, "abi": abi, "missing": missing} | more


def torch(version, cuda=None):
    return {"torch.version": version, "package.torch": version} | ({"torch.cuda": cuda} if cuda else {})
