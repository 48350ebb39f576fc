"""Checksums of published files, by their path in the data directory.

Of files as they are served, but for those that servers pack anew: `gz-sha256` is of what a gzip file holds. Those of
PMLB are also in its repository (Git LFS), those of CIFAR on the page of its authors, those of SVHN in torchvision.
"""

from __future__ import annotations

_KINDS = {
    "gz-sha256": {
        "mnist/train-images-idx3-ubyte.gz": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "mnist/train-labels-idx1-ubyte.gz": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "mnist/t10k-images-idx3-ubyte.gz": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "mnist/t10k-labels-idx1-ubyte.gz": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        "fashion-mnist/train-images-idx3-ubyte.gz": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "fashion-mnist/train-labels-idx1-ubyte.gz": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "fashion-mnist/t10k-images-idx3-ubyte.gz": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "fashion-mnist/t10k-labels-idx1-ubyte.gz": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
    "sha256": {
        "pmlb/analcatdata_authorship.tsv.gz": "1b26db950ef47fb34fb31958dd18912e279e6a668b0b88834182d303d616b88d",
        "pmlb/appendicitis.tsv.gz": "47c92e5d64f038751dc26c7c33b3ecb24d031b1c4ce304b7aad4097b3dd0bd31",
        "pmlb/churn.tsv.gz": "7a8bf22bd4c0845187d4d6eb39b215181ba149834b851430a68052a7a3a86bcc",
        "pmlb/collins.tsv.gz": "a5c0e0103dc8caf7a9b18ab4546a046ba2e01425259c639069fa02f0824ae0f2",
        "pmlb/led24.tsv.gz": "cc1015b08f7b19dbf2c32637d62d9da821ff6bd48a0778f7bf7e71e043a5c26c",
        "pmlb/letter.tsv.gz": "f8ffe4f9920dc63fb85b864cc1afffb66e45c6e302d175905fd7db04ba67b8c6",
        "pmlb/optdigits.tsv.gz": "b70b7ac68a54d1ccd41bd24f11324c3af96b67541791fb9d8684cbdf151533c3",
        "pmlb/satimage.tsv.gz": "1ee8cf9693351db7afe68f6fc32942845caae3e1030c688efa6c5d0b24229f46",
        "pmlb/shuttle.tsv.gz": "fb73571feabc1f0c10dc749acb28bf2d0efceeedca2115eafd79ad5b82cdcba0",
        "pmlb/sonar.tsv.gz": "64378cabaecdb50e2e1e644c1d6bc359f0627ebe313870ad09e1e41ed972529b",
        "pmlb/spambase.tsv.gz": "735e8d43f7ee78ac54ca17404510e95f4c8b364a721e4d9532a1b3221ed70961",
        "pmlb/spectf.tsv.gz": "664081130aa48fc189b2e1d3c44332f0b3eb1ee6d31b79af1643c137697677e4",
        "pmlb/texture.tsv.gz": "94abf897fcd6d93b0f78ea309b10ef5b83a8b95e46aa29974a43dbefb3741c0c",
        "pmlb/vehicle.tsv.gz": "dad03273414ae7127e30b6e4e66df90319a148b37ead5dd376dd140be5baedc4",
        "pmlb/waveform_40.tsv.gz": "b095f9d384fbac256b5870d3ca01d687e776a81457351a8a6fa56e7f1d09c4b0",
        "pmlb/wine_quality_red.tsv.gz": "6402396156d04f7269074f4e58fa40ad1147f9298179bf388962d6ef9f916824",
        "pmlb/wine_quality_white.tsv.gz": "0d39f17afc3a1712bd6c460aa941aed7835b3feb142538adfdd31ddc2451d60d",
        "pmlb/yeast.tsv.gz": "705c335a0d7edb3edf247ea313f2ae334086ce3e6bf4e1b64a8b306befd1c816",
    },
    "md5": {
        "cifar10/cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
        "cifar100/cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8",
        "svhn/train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
        "svhn/test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    },
}
CHECKSUMS = {path: f"{kind}:{digest}" for kind, files in _KINDS.items() for path, digest in files.items()}
