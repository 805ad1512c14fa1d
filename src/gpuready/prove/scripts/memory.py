"""GPU memory: allocate nearly all that is free, write a pattern, and read it back."""

import proof

PIECE, SHARE = 1 << 30, 0.9


def run_proof(p):
    torch = p.torch()
    if not p.cuda:
        raise proof.Absent("this is about the memory of a GPU", "gpu")
    free, total = torch.cuda.mem_get_info(p.device)
    p.record_number("free", free, unit="B")
    p.record_number("total", total, unit="B")
    wanted = int(free * SHARE)
    pieces, wrong = [], 0
    p.begin_step("take %.1f GiB" % (wanted / PIECE))
    while wanted > 0:
        size = min(PIECE, wanted)
        pieces.append(torch.empty(size // 8, dtype=torch.int64, device=p.device))
        wanted -= size
    p.wait_for_gpu()
    p.begin_step("write")
    for number, piece in enumerate(pieces):
        piece.fill_(0x0123456789ABCDEF ^ number)
    p.wait_for_gpu()
    p.begin_step("read")
    for number, piece in enumerate(pieces):
        wrong += int((piece != (0x0123456789ABCDEF ^ number)).sum())
    p.begin_step("compare")
    p.record_number("wrong_words", wrong, "equal", 0)
    p.record_number("held_of_free", sum(piece.numel() * 8 for piece in pieces) / free, "least", SHARE - 0.01)
