"""What the programs beside this have in common."""
import torch


class Layer(torch.nn.Module):
    """One layer of a transformer, in plain operations: what a model in eager mode launches."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.mix, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.mix(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = torch.nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(torch.nn.functional.gelu(self.up(self.second(x))))


@torch.no_grad()
def captured(forward, warm_up=3):
    """Returns a function that replays a captured graph of `forward` and returns what that made, after some calls to warm up.

    It keeps `forward`, because a graph does not keep the weights that it reads.
    """
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(warm_up):
            forward()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = forward()

    def replay():
        graph.replay()
        return made

    replay.reads = forward
    return replay


def training(wrap=lambda model: model):
    """Returns the step of a training: a transformer of eight layers with random weights and data, forward, backward and optimiser.

    `wrap` is applied to the model before the optimiser is made. A step returns the loss.
    """
    torch.manual_seed(2)
    model = wrap(torch.nn.Sequential(*[Layer(1024, 16) for _ in range(8)]).cuda().bfloat16())
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batch = torch.randn(24, 512, 1024, device="cuda", dtype=torch.bfloat16)

    def step():
        optimiser.zero_grad(set_to_none=True)
        loss = model(batch).float().square().mean()
        loss.backward()
        optimiser.step()
        return loss

    return step
