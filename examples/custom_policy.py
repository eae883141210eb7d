"""A policy of your own: a small network that compares each element with the instruction. It taps, scrolls or finishes.

    cd examples && distrl train --policy.kind custom_policy:OverlapPolicy --run.minutes 1

A choice is a row of `encode`. docs/policies.md says what each method owes; examples/own_package has a policy that reads words.
"""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from distrl.policies.base import NetworkPolicy, Scores
from distrl.types import Decision, Finish, Swipe, Tap


class OverlapPolicy(NetworkPolicy):
    def __init__(self, settings, context):
        torch.manual_seed(context.seed)
        self.network = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 2)).to(context.device)

    def encode(self, observation):  # rows: finish, scroll, tap the first element, the second, …
        asked, done = observation.instruction.lower(), {past.target for past in observation.recent}
        texts = [(element.text or element.description) for element in observation.elements]
        shares = [sum(w in asked for w in text.lower().split()) / max(1, len(text.split())) for text in texts]
        taps = [[0, 0, share, text in done, len(done)] for text, share in zip(texts, shares, strict=True)]
        return torch.tensor([[1, 0, 0, 0, len(done)], [0, 1, 0, 0, len(done)], *taps], dtype=torch.float32)

    def _forward(self, encoded, temperature=1.0):
        found = [self.network(rows.to(self.network[0].weight.device)) for rows in encoded]
        logp = pad_sequence([(each[:, 0] / temperature).log_softmax(0) for each in found], True, -1e9)
        return logp, -(logp.exp() * logp).sum(-1), torch.stack([each[:, 1].mean() for each in found])

    @torch.no_grad()
    def decide(self, observations, *, temperature, generator):
        found = self._forward([self.encode(seen) for seen in observations], temperature or 1e-4)
        logp, entropy, value = (each.cpu() for each in found)
        chosen, made = torch.multinomial(logp.exp(), 1, generator=generator)[:, 0].tolist(), []
        for n, (seen, c) in enumerate(zip(observations, chosen, strict=True)):
            actions = [Finish(), Swipe(0.5, 0.7, 0.5, 0.3), *(Tap(*e.bounds.centre) for e in seen.elements)]
            numbers = {"logp": float(logp[n, c]), "entropy": float(entropy[n]), "value": float(value[n].sigmoid())}
            made.append(Decision(action=actions[c], choice=(c,), **numbers))
        return made

    def score(self, encoded, choices):
        logp, entropy, value = self._forward(encoded)
        chosen = torch.tensor([choice[:1] or (0,) for choice in choices], device=logp.device)
        return Scores(logp_N=logp.gather(1, chosen)[:, 0], entropy_N=entropy, value_logit_N=value)

    def imitate(self, observation, action):
        if not isinstance(action, Tap):
            return {Finish: (0,), Swipe: (1,)}.get(type(action))
        hit = [n for n, e in enumerate(observation.elements, 2) if e.bounds.contains(action.x, action.y)]
        return (hit[-1],) if hit else None
