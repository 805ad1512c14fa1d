"""A Triton kernel: a row-wise softmax, compiled for this GPU now, against float64."""

import proof

triton = tl = None  # read by the kernel below; set once they are imported as steps of the proof


def make_softmax_kernel():
    @triton.jit
    def softmax_rows(out, x, columns, WIDTH: tl.constexpr):
        row = tl.program_id(0)
        at = tl.arange(0, WIDTH)
        inside = at < columns
        values = tl.load(x + row * columns + at, mask=inside, other=float("-inf"))
        values = tl.exp(values - tl.max(values, 0))
        tl.store(out + row * columns + at, values / tl.sum(values, 0), mask=inside)

    return softmax_rows


def run_proof(p):
    global triton, tl
    torch = p.torch()
    triton = p.import_module("triton")
    tl = p.import_module("triton.language")
    p.record["versions"]["triton"] = str(triton.__version__)
    if not p.cuda:
        raise proof.Absent("Triton needs a GPU", "gpu")
    rows, columns = 512, 1000
    x = torch.randn(rows, columns, device=p.device)
    out = torch.empty_like(x)
    p.begin_step("compile the kernel and run it")
    make_softmax_kernel()[(rows,)](out, x, columns, WIDTH=1024)
    p.wait_for_gpu()
    p.begin_step("compare with float64")
    p.check_close("softmax", out, x.double().softmax(1), 1e-5)
    p.record_number("row_sum", float((out.double().sum(1) - 1).abs().max()), "most", 1e-5)
