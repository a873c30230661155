"""A small Vision Transformer (Dosovitskiy et al. 2021, arXiv:2010.11929), written for PyTorch."""

import torch
import torch.nn as nn


class PatchEmbedding(nn.Module):
    def __init__(self, patch_size, channels, dim):
        super().__init__()
        self.patch_size = patch_size
        self.proj = nn.Linear(channels * patch_size**2, dim)

    def forward(self, x):
        b, c, h, w = x.shape
        p = self.patch_size
        x = x.reshape(b, c, h // p, p, w // p, p).permute(0, 2, 4, 1, 3, 5)
        return self.proj(x.flatten(3).flatten(1, 2))


class Attention(nn.Module):
    def __init__(self, dim, num_heads, dropout):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        b, n, d = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.num_heads, d // self.num_heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attn = ((q @ k.mT) * q.size(-1) ** -0.5).softmax(dim=-1)
        x = (self.drop(attn) @ v).permute(0, 2, 1, 3).contiguous().view(b, n, d)
        return self.proj(x)


class Block(nn.Module):
    def __init__(self, dim, num_heads, dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, num_heads, dropout)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(dim, dim * 4), nn.GELU(), nn.Dropout(dropout), nn.Linear(dim * 4, dim)
        )

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, classes=4, dim=16, depth=2, num_heads=4, dropout=0.0):
        super().__init__()
        self.patch_embed = PatchEmbedding(4, 3, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.randn(1, 5, dim) * 0.02)
        self.blocks = nn.ModuleList([Block(dim, num_heads, dropout) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patch_embed(x)
        cls = self.cls_token.expand(x.size(0), -1, -1)
        x = torch.cat((cls, x), dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


def train(model, x, y, steps, lr=1e-3):
    matrices = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    vectors = [p for name, p in model.named_parameters() if p.dim() <= 1]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.98), weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    model.train()
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


def predict(model, x):
    model.eval()
    with torch.no_grad():
        probabilities = torch.softmax(model(x), dim=-1)
    return probabilities.argmax(-1).tolist()
