"""A multilayer perceptron that tells the arms of a spiral apart, written for PyTorch."""

import torch
from torch import nn


class MLP(nn.Module):
    def __init__(self, features, hidden, classes, dropout=0.0):
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("std", torch.ones(features))
        self.net = nn.Sequential(
            nn.Linear(features, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(p=dropout),
            nn.Linear(hidden, hidden),
            nn.GELU(),
            nn.LayerNorm(hidden),
            nn.Linear(hidden, classes, bias=False),
        )
        self.apply(self.init_weights)

    @staticmethod
    def init_weights(module):
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, x):
        x = (x - self.mean) / self.std
        return self.net(x.view(x.size(0), -1))


def spirals(n, arms=3, turns=1.5):
    radius = torch.linspace(0.1, 1, n)
    points, labels = [], []
    for arm in range(arms):
        angle = radius * turns * 2 * torch.pi + arm * 2 * torch.pi / arms
        points.append(torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], dim=1))
        labels.append(torch.full((n,), arm))
    return torch.cat(points, dim=0), torch.cat(labels).long()


def train(model, x, y, steps, lr=0.2):
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=8, gamma=0.5)
    model.train()
    losses = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    return (model(x).argmax(dim=1) == y).float().mean().item()


def main(steps=20):
    torch.manual_seed(0)
    model = MLP(2, 32, 3).double()
    x, y = spirals(40)
    x = x.double()
    losses = train(model, x, y, steps)
    print(f"{sum(p.numel() for p in model.parameters())} parameters")
    print(f"loss {losses[0]:.4f} to {losses[-1]:.4f}, accuracy {accuracy(model, x, y):.1%}")


if __name__ == "__main__":
    main()
