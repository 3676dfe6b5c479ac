"""Detectors with a pyramid of features."""

from torch import Tensor, nn

from .parts import sequence
from .residual import resnet50

#: Strides of 8 to 128.
LEVELS = 5
#: The layers of ResNet-50 that end its stages of strides 8, 16 and 32, and their channels.
STAGES = {"res3d": 512, "res4f": 1024, "res5c": 2048}


def _conv(stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(256, 256, 3, stride=stride, padding=1, bias=False)


def _normalized(stride: int = 1) -> nn.Sequential:
    return sequence(conv=_conv(stride), bn=nn.BatchNorm2d(256), relu6=nn.ReLU6())


class Tower(nn.Module):
    """Four convolutions and one more, the same at all levels, with norms of each level."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(_conv() for _ in range(4))
        self.bns = nn.ModuleList(
            nn.ModuleList(nn.BatchNorm2d(256) for _ in range(LEVELS)) for _ in range(4)
        )
        self.relu6 = nn.ReLU6()
        self.predictor = nn.Conv2d(256, outputs, 3, padding=1)

    def forward(self, x: Tensor, level: int) -> Tensor:
        for conv, bns in zip(self.convs, self.bns, strict=True):
            x = self.relu6(bns[level](conv(x)))
        scores: Tensor = self.predictor(x)
        return scores


class PyramidSSD(nn.Module):
    """SSD on ResNet-50 with a pyramid and shared towers, which is RetinaNet's form.

    As TensorFlow's Object Detection API has it (`ssd_resnet50_v1_fpn`, weight-shared convolutional
    box predictor) and NVIDIA's DeepLearningExamples configure it: 6 boxes at each position, 90
    classes and a background. Boxes are not chosen here.
    """

    def __init__(self) -> None:
        super().__init__()
        layers = iter(dict(resnet50().named_children()).items())
        self.stages = nn.ModuleList()
        for end in STAGES:
            stage: dict[str, nn.Module] = {}
            while end not in stage:
                name, layer = next(layers)
                stage[name] = layer
            self.stages.append(sequence(**stage))
        self.projections = nn.ModuleList(nn.Conv2d(c, 256, 1) for c in STAGES.values())
        self.upsample = nn.Upsample(scale_factor=2, mode="nearest")
        self.smoothing = nn.ModuleList(_normalized() for _ in range(2))
        self.coarse = nn.ModuleList(_normalized(stride=2) for _ in range(2))
        self.boxes = Tower(6 * 4)
        self.classes = Tower(6 * 91)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        x = self.projections[2](features[2])
        levels = [x]
        for i in (1, 0):
            x = self.upsample(x) + self.projections[i](features[i])
            levels.insert(0, self.smoothing[i](x))
        for coarse in self.coarse:
            levels.append(coarse(levels[-1]))
        return tuple(
            tower(level, i)
            for tower in (self.boxes, self.classes)
            for i, level in enumerate(levels)
        )


def ssd320_resnet50_fpn() -> nn.Module:
    """SSD on 320x320 images with ResNet-50 and a pyramid of features."""
    return PyramidSSD()
