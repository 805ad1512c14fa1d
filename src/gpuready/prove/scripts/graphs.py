"""CUDA graphs: capture once, replay with other inputs."""

import proof


def run_proof(p):
    torch = p.torch()
    if not p.cuda:
        raise proof.Absent("CUDA graphs need a GPU", "gpu")
    torch.backends.cuda.matmul.allow_tf32 = False
    x = torch.randn(128, 256, device=p.device)
    weight = torch.randn(256, 256, device=p.device) / 16
    p.begin_step("warm up on a side stream")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            (x @ weight).relu()
    torch.cuda.current_stream().wait_stream(side)
    p.begin_step("capture")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x @ weight).relu()
    p.begin_step("replay with other inputs")
    for turn in range(3):
        new = torch.randn_like(x)
        x.copy_(new)
        graph.replay()
        p.wait_for_gpu()
        p.check_close("replay_%d" % turn, y, (new.double() @ weight.double()).relu(), 1e-5)
