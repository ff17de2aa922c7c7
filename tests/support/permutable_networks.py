"""Networks of many kinds, with the sizes of the groups of units that can be permuted in each."""

import torch
from torch import nn
from torch.nn import functional

IMAGES = (3, 8, 8)


class Forward(nn.Module):
    """A network of layers and a function of them and the inputs."""

    def __init__(self, forward, **layers):
        super().__init__()
        self.layers = nn.ModuleDict({name: layer for name, layer in layers.items() if isinstance(layer, nn.Module)})
        for name, value in layers.items():
            if isinstance(value, torch.Tensor):
                setattr(self, name, value if isinstance(value, nn.Parameter) else nn.Parameter(value))
        self._forward = forward

    def forward(self, inputs):
        return self._forward(self, inputs)


def with_own_statistics(network):
    """Gives buffers and the parameters of normalization layers values that differ from unit to unit; in float64."""
    generator = torch.Generator().manual_seed(3)
    for tensor in (*network.parameters(), *network.buffers()):
        if tensor.is_floating_point():
            tensor.data += 0.3 * torch.rand(tensor.shape, generator=generator)
    return network.double()


def decoder():
    """From 10 numbers to images: places that a linear layer makes, and transposed convolutions."""
    return nn.Sequential(
        nn.Linear(10, 6 * 4 * 4), nn.ReLU(), nn.Unflatten(1, (6, 4, 4)),
        nn.ConvTranspose2d(6, 4, 2, stride=2), nn.GELU(), nn.ConvTranspose2d(4, 4, 3, groups=2), nn.ReLU(),
        nn.Conv2d(4, 1, 3),
    )  # fmt: skip


def mobile():
    """Inverted residuals: depthwise convolutions, squeeze and excitation, a residual stream."""

    def forward(net, x):
        layers = net.layers
        x = layers["stem"](x)
        y = functional.hardswish(layers["depth"](layers["widen"](x)))
        gate = torch.sigmoid(layers["excite"](functional.relu(layers["squeeze"](y.mean((2, 3), keepdim=True)))))
        x = x + layers["narrow"](y * gate)
        return layers["head"](functional.adaptive_avg_pool2d(x, 1).flatten(1))

    return Forward(
        forward, stem=nn.Conv2d(3, 8, 3), widen=nn.Sequential(nn.Conv2d(8, 12, 1), nn.BatchNorm2d(12), nn.ReLU6()),
        depth=nn.Conv2d(12, 12, 3, padding=1, groups=12), squeeze=nn.Conv2d(12, 5, 1), excite=nn.Conv2d(5, 12, 1),
        narrow=nn.Conv2d(12, 8, 1), head=nn.Linear(8, 10),
    )  # fmt: skip


def grouped():
    """Convolutions in groups and normalization in groups: groups are permuted whole, and inside each in its own way."""
    return nn.Sequential(
        nn.Conv2d(3, 12, 3), nn.GroupNorm(4, 12), nn.ReLU(), nn.Conv2d(12, 8, 3, groups=4), nn.InstanceNorm2d(8),
        nn.PReLU(8), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def normalized():
    """A residual stream that GroupNorm divides, with a square convolution that reads and writes it."""

    def forward(net, x):
        layers = net.layers
        x = layers["stem"](x)
        x = x + layers["inner"](functional.relu(layers["norm"](x)))
        return layers["head"](layers["last"](x).mean((2, 3)))

    return Forward(
        forward, stem=nn.Conv2d(3, 12, 3), norm=nn.GroupNorm(3, 12), inner=nn.Conv2d(12, 12, 3, padding=1),
        last=nn.GroupNorm(3, 12), head=nn.Linear(12, 10),
    )  # fmt: skip


def at_the_ends():
    """One group, and as many groups as channels: all channels in any order. Neighbours in order: none."""
    return nn.Sequential(
        nn.Conv2d(3, 6, 1), nn.GroupNorm(1, 6), nn.Conv2d(6, 5, 1), nn.GroupNorm(5, 5), nn.Conv2d(5, 7, 1),
        nn.LayerNorm((7, 8, 8)), nn.Conv2d(7, 8, 1), nn.LocalResponseNorm(3), nn.Conv2d(8, 4, 1), nn.Flatten(),
        nn.Linear(256, 10),
    )  # fmt: skip


def shuffled():
    """Channels that become places and the other way round, and channels that change groups."""
    return nn.Sequential(
        nn.Conv2d(3, 20, 1), nn.PixelShuffle(2), nn.PReLU(5), nn.PixelUnshuffle(2), nn.Conv2d(20, 15, 1, groups=5),
        nn.ChannelShuffle(5), nn.ReLU(), nn.Conv2d(15, 6, 1), nn.Flatten(), nn.Linear(384, 10),
    )  # fmt: skip


def of_heads(mix):
    """Returns what builds a network in which a function mixes four heads of three units."""

    def forward(net, x):
        x = net.layers["first"](x.flatten(1)).view(-1, 4, 3)
        return net.layers["head"](mix(x).flatten(1))

    return lambda: Forward(forward, first=nn.Linear(192, 12), head=nn.Linear(12, 10))


def attention(x):
    return (x @ x.transpose(1, 2)).softmax(-1) @ x


def fused_attention(x):
    return functional.scaled_dot_product_attention(x, x, x)


def two_divisions():
    """Two normalizations that divide the same channels in different ways."""
    return nn.Sequential(
        nn.Conv2d(3, 12, 1), nn.GroupNorm(2, 12), nn.ReLU(), nn.GroupNorm(6, 12), nn.Conv2d(12, 12, 1),
        nn.GroupNorm(2, 12), nn.ReLU(), nn.GroupNorm(3, 12), nn.Flatten(), nn.Linear(768, 10),
    )  # fmt: skip


def dense():
    """Concatenation fixes what it joins, but not what lies between."""

    def forward(net, x):
        x = net.layers["stem"](x)
        y = net.layers["grow"](functional.relu(net.layers["inner"](x)))
        return net.layers["head"](torch.cat([x, y], 1).mean((2, 3)))

    return Forward(
        forward, stem=nn.Conv2d(3, 8, 3), inner=nn.Conv2d(8, 7, 1), grow=nn.Conv2d(7, 4, 3, padding=1),
        head=nn.Linear(12, 10),
    )  # fmt: skip


def gpt():
    """Causal attention by hand with tied embeddings, positions, a gated layer and RMSNorm; 4 heads of 4."""

    def forward(net, tokens):
        layers = net.layers
        x = layers["words"](tokens) + net.places[: tokens.shape[1]]
        query, key, value = (
            part.view(*part.shape[:2], 4, 4).transpose(1, 2) for part in layers["heads"](layers["norm"](x)).split(16, 2)
        )
        mask = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
        scores = (query @ key.transpose(-1, -2) / 2).masked_fill(~mask, float("-inf")).softmax(-1)
        x = x + layers["merge"]((scores @ value).transpose(1, 2).contiguous().view(*tokens.shape, 16))
        gate, up = layers["gate_up"](layers["second_norm"](x)).chunk(2, -1)
        x = x + layers["down"](functional.silu(gate) * up)
        return functional.linear(x, layers["words"].weight)

    return Forward(
        forward, words=nn.Embedding(11, 16), places=torch.randn(9, 16), norm=nn.LayerNorm(16), heads=nn.Linear(16, 48),
        merge=nn.Linear(16, 16), second_norm=nn.RMSNorm(16), gate_up=nn.Linear(16, 40), down=nn.Linear(20, 16),
    )  # fmt: skip


def encoder():
    """PyTorch's own transformer layer, in eval mode one fused operator if nobody prevents it."""
    layer = nn.TransformerEncoderLayer(16, 4, 24, batch_first=True, dropout=0.1)
    return nn.Sequential(nn.Embedding(11, 16), nn.TransformerEncoder(layer, 1), nn.Linear(16, 3))


def recurrent():
    """An LSTM, of which the last step counts."""

    def forward(net, tokens):
        outputs, _ = net.layers["lstm"](net.layers["words"](tokens))
        return net.layers["head"](outputs[:, -1])

    return Forward(forward, words=nn.Embedding(11, 6), lstm=nn.LSTM(6, 9, batch_first=True), head=nn.Linear(9, 3))


def mixer():
    """Units that become places: a linear layer over the places of an image, and einsum."""

    def forward(net, x):
        x = functional.gelu(net.layers["first"](x.flatten(2)))
        x = torch.einsum("bcp,dc->bdp", x, net.channels)
        return net.layers["head"](functional.relu(x).amax(2))

    return Forward(forward, first=nn.Linear(64, 13), channels=torch.randn(7, 3), head=nn.Linear(7, 10))


def sorting():
    """Sorted units have an order: nothing of theirs can be permuted, but the layer before can."""

    def forward(net, x):
        x = torch.relu(net.layers["first"](x.flatten(1)))
        return net.layers["head"](net.layers["second"](x).sort(1).values.cumsum(1))

    return Forward(forward, first=nn.Linear(192, 9), second=nn.Linear(9, 6), head=nn.Linear(6, 4))


def images(count=3):
    return torch.randn(count, *IMAGES, generator=torch.Generator().manual_seed(5))


def tokens():
    return torch.randint(11, (3, 7), generator=torch.Generator().manual_seed(5))


# Name to network, inputs, shapes of the groups' permutations, and operators without a rule.
NETWORKS = {
    "decoder": (decoder, lambda: torch.randn(3, 10), [(2,), (2, 2), (2, 2), (6,)], ()),
    "mobile": (mobile, images, [(5,), (8,), (12,)], ()),
    "grouped": (grouped, images, [(4,), (4, 2), (4, 3)], ()),
    "normalized": (normalized, images, [(3,), (3, 4)], ()),
    "at the ends": (at_the_ends, images, [(4,), (5,), (6,), (7,)], ()),
    "shuffled": (shuffled, images, [(5,), (5, 3), (6,)], ()),
    # Each head attends to all others, so that what is inside them has one order in all, by hand and fused.
    "across heads": (of_heads(attention), images, [(3,), (4,)], ()),
    "fused across heads": (of_heads(fused_attention), images, [(3,), (4,)], ()),
    # Groups compete for each of their channels: they have an order for each channel, not the other way round.
    "softmax over groups": (of_heads(lambda x: x * x.softmax(1)), images, [(3,), (3, 4)], ()),
    "two divisions": (two_divisions, images, [(2,), (2, 2), (2, 3)], ("group_norm",)),
    "dense": (dense, images, [(7,)], ()),
    "gpt": (gpt, tokens, [(4,), (4, 4), (16,), (20,)], ()),
    "encoder": (encoder, tokens, [(4,), (4, 4), (16,), (24,)], ()),
    "recurrent": (recurrent, tokens, [(6,), (9,)], ()),
    "mixer": (mixer, images, [(7,), (13,)], ()),
    "sorting": (sorting, images, [(9,)], ("sort",)),
}
