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
