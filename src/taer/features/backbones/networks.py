"""The paper's two architectures without classifiers; parameters have the names of the published weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class VisionTransformer(nn.Module):
    """ViT with 16 × 16 patches on 224 × 224 pixels, up to the class token after the last norm.

    Parameters are named as in timm.
    """

    def __init__(self, width: int, heads: int, depth: int = 12) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 14 * 14 + 1, width))
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, width, 16, 16)})
        self.blocks = nn.Sequential(*(_TransformerBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patch_embed["proj"](images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls_token.expand(len(images), -1, -1), patches], 1) + self.pos_embed
        return self.norm(self.blocks(tokens)[:, 0])


class _TransformerBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width)})
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, 4 * width), "fc2": nn.Linear(4 * width, width)})

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self._attention(self.norm1(tokens))
        return tokens + self.mlp["fc2"](functional.gelu(self.mlp["fc1"](self.norm2(tokens))))

    def _attention(self, tokens: Tensor) -> Tensor:
        batch, length, width = tokens.shape
        qkv = self.attn["qkv"](tokens).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.attn["proj"](mixed.transpose(1, 2).reshape(batch, length, width))


class ResNet18(nn.Module):
    """ResNet18 up to its global average pool; parameters are named as in torchvision."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(_BasicBlock(64, 64, 1), _BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(_BasicBlock(64, 128, 2), _BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(_BasicBlock(128, 256, 2), _BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(_BasicBlock(256, 512, 2), _BasicBlock(512, 512, 1))

    def forward(self, images: Tensor) -> Tensor:
        maps = functional.max_pool2d(functional.relu(self.bn1(self.conv1(images))), 3, 2, 1)
        return self.layer4(self.layer3(self.layer2(self.layer1(maps)))).mean((2, 3))


class _BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, maps: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(maps)))))
        return functional.relu(inner + self.downsample(maps))
