"""Face recognition in PyTorch: a network for embeddings, and a classifier that ranks may split."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from throughline.spec import RunSpec
from throughline.workloads import Arrays, Unsupported, Values
from throughline.workloads.faces import MARGINS, NETWORKS, SCALE, Parameters
from throughline.workloads.faces.in_torch_classifier import Classifier
from throughline.workloads.faces.in_torch_networks import iresnet, mobilefacenet
from throughline.workloads.in_torch_form import Network, TorchForm
from throughline.workloads.in_torch_tensor_parallel import TensorGroup


class Faces(Network):
    """The network for embeddings, and the classifier. `forward` takes the tensors of a batch and returns the loss.

    With `half_type`, PyTorch's autocast chooses the operations of the network that have this type. The last layer and
    the softmax are computed in the weights' type.
    """

    def __init__(self, layers: nn.Sequential, classifier: Classifier) -> None:
        super().__init__()
        self.layers: Any = layers.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.classifier = classifier

    def parts(self) -> list[tuple[nn.Module, str]]:
        return [(self, "embed")]  # the classifier, with its exchange, is not compiled

    def forward(self, pixels: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor = self.classifier(self.embed(pixels), labels.long(), self.half_type)
        return loss

    def embed(self, pixels: Tensor) -> Tensor:
        """Return the embeddings [B, D] of pixels u1 [B, 112, 112, 3], which are first scaled to -1 to 1."""
        *first, last, norm = self.layers.children()
        faces = (pixels.permute(0, 3, 1, 2).to(last.weight.dtype) - 127.5) / 127.5
        with self.autocast():
            for layer in first:
                faces = layer(faces)
        embeddings: Tensor = norm(last(faces.to(last.weight.dtype)))
        return embeddings


class FacesInTorch(TorchForm[Parameters, Faces]):
    lacks = {
        "clipping": "the norm of a gradient that ranks hold in parts is not computed",
        "activation_checkpointing": "recomputing a batch norm would change its running statistics twice",
        "convergence": "faces have no held-out figures",
        "cuda_graph": "nobody has tried to replay the exchange of embeddings",
        "sharding": "the classifier, which is most of the weights, has a split of its own: classifier: model_parallel",
    }
    changing = frozenset({"running_mean", "running_var", "num_batches_tracked"})

    def build(self, spec: RunSpec[Parameters], facts: Values, at: torch.device | None = None) -> Faces:
        """Return the network with random weights. `spread` splits its classifier."""
        given, network, dropout = spec.parameters, NETWORKS[spec.model], spec.options.dropout
        if given.classifier != "data_parallel" and not spec.options.gradient_sync:
            raise Unsupported("ranks that split a classifier cannot train without exchanging embeddings")
        layers = iresnet(network, dropout) if network.layers else mobilefacenet(network.embedding)
        return Faces(layers, Classifier(given, network.embedding))

    def spread(self, network: Faces, ranks: TensorGroup) -> frozenset[str]:
        """Keep this rank's classes. Return the names of the parameters that no other rank has."""
        network.classifier.spread(ranks)
        return frozenset({"classifier.weight"})

    def weights(self, network: Faces) -> Arrays:
        """If ranks split the classifier, all of them have to call this together."""
        return {**super().weights(network), "classifier.weight": network.classifier.whole().cpu().numpy()}

    def load(self, network: Faces, weights: Arrays) -> None:
        part, name = network.classifier.part, "classifier.weight"
        super().load(network, {**weights, name: part(weights[name])} if name in weights else weights)

    def settings(self, network: Faces) -> dict[str, Any]:
        given, classifier = network.classifier.given, network.classifier
        of_layers = sum(parameter.numel() for parameter in network.layers.parameters())
        embedding, sampled = classifier.weight.shape[1], f", {given.sample_ratio:g} of them in a step"
        exact = given.margin_loss == "cosface" or given.margin_gradient == "exact"
        gradient = "its exact gradient" if exact else "its gradient as InsightFace has it"
        return {
            "parameters": of_layers + given.classes * embedding,
            "embedding": embedding,
            "classifier": given.classifier + (sampled if given.classifier == "partial" else ""),
            "classes": given.classes,
            "margin": f"{given.margin_loss} {MARGINS[given.margin_loss]:g}, {gradient}",
            "scale": SCALE,
            "batch_norm": "statistics of each rank's own faces",
            "memory_format": "channels last",
            "dropout": [layer.p for layer in network.layers if isinstance(layer, nn.Dropout)],
            "loss": f"mean cross entropy, of {'each rank' if classifier.ranks is None else 'all ranks'}",
        }


FORM = FacesInTorch()
