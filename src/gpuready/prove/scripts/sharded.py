"""FSDP2: training steps with parameters sharded over the ranks, against the same unsharded."""

import proof


def run_proof(p):
    dist = p.join_group()
    torch = p.torch()
    shard = import_fully_shard(torch)
    p.begin_step("make the model")
    torch.manual_seed(1)
    make = lambda: torch.nn.Sequential(  # noqa: E731
        torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 32)
    ).to(p.device)
    plain, sharded = make(), make()
    sharded.load_state_dict(plain.state_dict())
    p.begin_step("shard over %d ranks" % p.ranks)
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh(p.device.type, (p.ranks,))
    for part in (sharded[0], sharded[2], sharded):
        shard(part, mesh=mesh)
    x = torch.randn(16 * p.ranks, 64, device=p.device)
    y = torch.randn(16 * p.ranks, 32, device=p.device)
    for one in (x, y):
        dist.broadcast(one, src=0)
    p.begin_step("train both")
    exact = train_three_steps(torch, plain, x, y)
    rows = slice(16 * p.rank, 16 * (p.rank + 1))
    train_three_steps(torch, sharded, x[rows], y[rows])
    p.begin_step("compare")
    for number, (one, other) in enumerate(zip(sharded.parameters(), exact.parameters())):
        p.check_close("parameter_%d" % number, one.full_tensor(), other, 1e-4)


def import_fully_shard(torch):
    try:
        from torch.distributed.fsdp import fully_shard as found
    except ImportError:
        try:
            from torch.distributed._composable.fsdp import fully_shard as found
        except ImportError:
            raise proof.Unsupported("torch %s has no fully_shard" % torch.__version__) from None
    return found


def train_three_steps(torch, model, x, y):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    return model
