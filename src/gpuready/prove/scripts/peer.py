"""Peer access: every pair of GPUs copies into each other's memory, with every element compared."""

import proof

COUNT = 16 << 20


def run_proof(p):
    torch = p.torch()
    if not p.cuda or torch.cuda.device_count() < 2:
        raise proof.Absent("peer access needs two GPUs", "gpu")
    count = torch.cuda.device_count()
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    able = [pair for pair in pairs if torch.cuda.can_device_access_peer(*pair)]
    p.record_note("pairs", len(pairs))
    for a, b in pairs:
        p.begin_step("GPU %d to GPU %d" % (a, b))
        check_peer_copy(p, torch, a, b)
    p.record_number("pairs_with_access", len(able), "equal", len(pairs))


def check_peer_copy(p, torch, a, b):
    there = torch.arange(COUNT, dtype=torch.int32, device="cuda:%d" % a) * (1 + a)
    got = torch.zeros(COUNT, dtype=torch.int32, device="cuda:%d" % b)
    got.copy_(there)
    for one in (a, b):
        torch.cuda.synchronize(one)
    p.check_equal("gpu%d_gpu%d" % (a, b), got, there)
