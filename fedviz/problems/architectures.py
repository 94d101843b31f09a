"""The shapes of the models' parameters, known without torch: what a run will cost before it starts.

Weights are stored as their layer has them, [outputs, inputs] or [outputs, inputs, 5, 5], each followed by its bias; softmax
regression has the bias as one more input that is always 1.
"""

from __future__ import annotations

Shape = tuple[int, ...]

HIDDEN = 200  # width of the two-layer network
CHANNELS = 64  # of the network of the Amplified SCAFFOLD paper

TITLES: dict[str, str] = {
    "softmax": "Softmax regression",
    "mlp": "Two-layer network",
    "cnn": "Convolution + linear",
    "fedavg_cnn": "CNN of the FedAvg paper",
    "lenet5": "LeNet-5",
}

# LaTeX: the scores of C labels for an image x of D numbers; * is a convolution with 5x5 kernels.
FORMULAS: dict[str, str] = {
    "softmax": r"h_w(x)=Wx+b,\quad d=C(D+1)",
    "mlp": (
        r"\begin{aligned}&h_w(x)=W_2\,\mathrm{relu}(W_1x+b_1)+b_2\\"
        r"&W_1\in\mathbb R^{200\times D},\quad d=200(D+1)+201\,C\end{aligned}"
    ),
    "cnn": (
        r"\begin{aligned}&h_w(x)=W_2\,\mathrm{relu}(W_1*x+b_1)+b_2\\"
        r"&64\text{ kernels, at every second pixel}\end{aligned}"
    ),
    "fedavg_cnn": (
        r"\begin{aligned}&x_1=\mathrm{pool}\,\mathrm{relu}(W_1*x+b_1),\quad 32\text{ kernels}\\"
        r"&x_2=\mathrm{pool}\,\mathrm{relu}(W_2*x_1+b_2),\quad 64\text{ kernels}\\"
        r"&h_w(x)=W_4\,\mathrm{relu}(W_3x_2+b_3)+b_4\\&W_3x_2\in\mathbb R^{512}\end{aligned}"
    ),
    "lenet5": (
        r"\begin{aligned}&x_1=\mathrm{pool}\,\mathrm{relu}(W_1*x+b_1),\quad 6\text{ kernels}\\"
        r"&x_2=\mathrm{pool}\,\mathrm{relu}(W_2*x_1+b_2),\quad 16\text{ kernels}\\"
        r"&x_3=\mathrm{relu}(W_3x_2+b_3)\in\mathbb R^{120}\\"
        r"&x_4=\mathrm{relu}(W_4x_3+b_4)\in\mathbb R^{84}\\"
        r"&h_w(x)=W_5x_4+b_5\end{aligned}"
    ),
}


def shapes(model: str, image: tuple[int, int, int], labels: int) -> list[Shape]:
    """Parameter shapes of `model` on images (channels, height, width)."""
    channels, height, width = image
    inputs = channels * height * width
    if model == "softmax":
        return [(labels, inputs + 1)]
    if model == "mlp":
        layers: list[Shape] = [(HIDDEN, inputs), (labels, HIDDEN)]
    elif model == "cnn":  # 5x5, stride 2, padding 2
        layers = [(CHANNELS, channels, 5, 5), (labels, CHANNELS * -(-height // 2) * -(-width // 2))]
    elif model == "fedavg_cnn":  # 5x5 padding 2, pool, twice
        layers = [(32, channels, 5, 5), (64, 32, 5, 5), (512, 64 * (height // 4) * (width // 4)), (labels, 512)]
    else:  # lenet5: 5x5 padding 2, pool, 5x5, pool
        area = ((height // 2 - 4) // 2) * ((width // 2 - 4) // 2)
        layers = [(6, channels, 5, 5), (16, 6, 5, 5), (120, 16 * area), (84, 120), (labels, 84)]
    return [shape for weight in layers for shape in (weight, weight[:1])]


def many_channels(weight: Shape) -> bool:
    """Whether these are the weights of a convolution that gains from `winograd`: with fewer channels, transforms cost what they save."""
    return len(weight) == 4 and min(weight[:2]) >= 16


def floats_per_sample(model: str, image: tuple[int, int, int]) -> int:
    """About how many numbers a gradient keeps for one image: its pixels, and three copies of what the first layer makes of them."""
    channels, height, width = image
    first = {
        "softmax": 0,
        "mlp": HIDDEN,
        "cnn": CHANNELS * -(-height // 2) * -(-width // 2),
        "fedavg_cnn": 32 * height * width,
        "lenet5": 6 * height * width,
    }[model]
    return channels * height * width + 3 * first
