"""Size, source, licence and citation of every data set, and differences from the paper's data."""

from __future__ import annotations

from dataclasses import dataclass

RESEARCH = "research use only"
UCI = "UCI Adult is CC BY 4.0; the copy states no terms"


@dataclass(frozen=True)
class Entry:
    """One data set."""

    name: str
    title: str
    shape: tuple[int, int]
    n_classes: int
    """Number of classes; 0 if the paper uses no labels."""
    paper: str
    """Description in the paper."""
    status: str
    """``faithful``, ``near faithful``, ``stand-in`` or ``generated``."""
    note: str
    """How it differs from the paper's data."""
    source: str
    licence: str
    citation: str
    sha256: str = ""
    """Checksum of the canonical file; empty if files differ between machines."""
    size: int = 0
    """Bytes of the canonical file."""
    by_hand: str = ""
    """How to get the data if a download needs an account."""

    @property
    def label(self) -> str:
        """The title, marked if it is a stand-in."""
        return f"{self.title} (stand-in)" if self.status == "stand-in" else self.title

    @property
    def file(self) -> str:
        """Name of the file; empty for generated data."""
        return "" if self.status == "generated" else f"{self.name}.npz"

    @property
    def how_to_get(self) -> str:
        """One-sentence description for the list and for errors."""
        if not self.file:
            return "nothing to get: made from a seed"
        return self.by_hand or f"wideangle datasets fetch {self.name}"


ENTRIES = (
    Entry(
        "adult9", "Adult-9", (48_842, 123), 2, "about 33K training and 16K test rows, 123 columns",
        "faithful", "LIBSVM's a9a and a9a.t: 32,561 training and 16,281 test rows.",
        "github.com/Astraeus-Q/SVM-Classifier at 01842c60, a9a.txt and a9a.t", UCI,
        "Platt (1999), Fast training of support vector machines using sequential minimal "
        "optimization; Becker and Kohavi (1996), Adult, UCI Machine Learning Repository",
        "2c72ec2e080c04be8caff936ac643467a84d277358fb8fdd098b4f97ddfee7c0", 395_136,
    ),
    Entry(
        "building", "Building", (5_694, 1_000), 2,
        "SUN-Building: about 6K building and 7K other images, 1000 visual words, 70 % for training",
        "stand-in",
        "Stand-in for SUN-Building: other photographs (Intel scene images, 2,628 buildings and "
        "3,066 drawn at random from five other classes), with the same kind of features computed "
        "for this project (dense SIFT, 1000 words). Fixed split, 70 % for training.",
        "github.com/keshav1245/Image-Classification-using-AlexNet-CNN-Model at f1387f35, "
        "seg_train and seg_test", f"no terms stated; {RESEARCH}",
        "Intel Image Classification (scene images of around the world); Lowe (1999), Object "
        "recognition from local scale-invariant features",
        "d43927bfbfa709deed97272c5b1822e918f99b6d49bb94be1a651912c879c67c", 2_624_520,
        "download the Intel Image Classification scenes (Kaggle, needs an account) and unpack "
        "seg_train and seg_test; then: wideangle datasets fetch building --from FOLDER",
    ),
    Entry(
        "rcv1_subsets", "RCV1 CCAT subset", (10_484, 943), 2,
        "13,097 positives in nine subcategories of CCAT, 15K negatives",
        "stand-in",
        "Stand-in: real RCV1 documents and topic codes, but 2,094 positives and 8,390 negatives in "
        "four samples (s1, s2, s3, s5) of 931 to 943 binary terms. The terms are anonymous and "
        "differ from sample to sample: four replicates, never one table. Rows that are under CCAT "
        "but in none of the nine codes are left out.",
        "github.com/KKimura360/MLC_toolbox at e7987792, dataset/matfile/rcv1s{1,2,3,5}.mat",
        "Reuters allows term/document matrices to be passed on, not the text; " + RESEARCH,
        "Lewis, Yang, Rose and Li (2004), RCV1: A new benchmark collection for text "
        "categorization research",
        "bcf41799afc9fdda4b69e11031ce8d12c70d2c0f6fe6e63ae14d9428596f3fab", 1_127_060,
        "put rcv1_subsets.npz into one of the folders; or draw anew from all of RCV1 with the "
        "paper's class sizes: wideangle datasets fetch rcv1",
    ),
    Entry(
        "rcv1", "RCV1 CCAT subset, redrawn", (28_097, 47_236), 2,
        "13,097 positives in nine subcategories of CCAT, 15K negatives",
        "near faithful",
        "Drawn anew from RCV1-v2 with the paper's class sizes (5281, 4125, 1194, 741, 611, 483, "
        "262, 208, 192): documents with exactly one of the nine codes, and 15,000 that are not "
        "under CCAT. Which documents and terms the paper took is not known. Made on your machine "
        "from a download of about 650 MB; there is no canonical file.",
        "RCV1-v2 as published with scikit-learn's fetch_rcv1 (figshare)",
        f"Reuters allows term/document matrices to be passed on, not the text; {RESEARCH}",
        "Lewis, Yang, Rose and Li (2004), RCV1: A new benchmark collection for text "
        "categorization research",
    ),
    Entry(
        "yale", "Yale", (719, 1_024), 0, "722 images, 1032 pixels", "near faithful",
        "Extended Yale B, 38 subjects under the 19 lights within 25 degrees of the axis: 722 minus "
        "three images that the database marks as bad. 32 x 32 pixels; the paper's 1032 could not "
        "be explained.",
        "github.com/Uranium2/recognition at 55008b5f, CroppedYale",
        f"no terms stated; the database is free for research; {RESEARCH}",
        "Georghiades, Belhumeur and Kriegman (2001), From few to many: illumination cone models "
        "for face recognition under variable lighting and pose",
        "ba200e0f9e2e449fa516ae480ae4853fb6cde4f08a62a618d5c93e6af377ffc6", 2_053_008,
    ),
    Entry(
        "block_images", "Block-Images", (1_000, 36), 0, "1000 images, 36 pixels", "generated",
        "Generated from a seed; the paper does not print its generator. Four 6 x 6 shapes, each "
        "present with probability 1/2, noise of deviation 0.5.",
        "generated by wideangle.datasets.block_images", "Apache 2.0",
        "Griffiths and Ghahramani (2005), Infinite latent feature models and the Indian buffet "
        "process",
    ),
    Entry(
        "ar", "AR", (1_680, 1_598), 0, "2600 images with lighting and accessories, 1598 pixels",
        "stand-in",
        "Stand-in: part of the same database, 1,680 images of 120 subjects with expressions and "
        "lighting; 130 images with sunglasses and scarves are in the file but cropped more "
        "tightly, and are not mixed in.",
        "github.com/XiaoZhu-05/RGD-NMF at 23567eee, AR.mat; github.com/ouharu/datasets at "
        "9498b2dd, warpAR10P.mat",
        f"no terms stated; the database is for non-commercial research; {RESEARCH}",
        "Martinez and Benavente (1998), The AR face database",
        "f75918cc2780ab11c1c0ed78f09a96482d17552ec24848f11f37773ca8945f87", 2_566_437,
    ),
    Entry(
        "eeg", "EEG", (4_400, 32), 0, "4400 samples, 32 channels", "stand-in",
        "Stand-in: another public 32-channel recording (a visual-attention task, 128 Hz), 4,400 of "
        "30,504 samples, evenly spaced. Two channels are eye electrodes.",
        "github.com/sccn/eeglab at 94b8557a, sample_data/eeglab_data.set and .fdt",
        "BSD 2-clause",
        "Delorme and Makeig (2004), EEGLAB: an open source toolbox for analysis of single-trial "
        "EEG dynamics",
        "fbc0f57ce6bf1aba033a7becec5939889ee587d83d974d232bd996df579ff187", 4_005_692,
    ),
    Entry(
        "piano", "Piano", (10_000, 161), 0, "10000 windows, 161 frequencies", "stand-in",
        "Stand-in: another piano recording; magnitudes of the DFT of 20 ms Hann windows of 70 s of "
        "music.",
        "github.com/librosa/data at 450cdd8a, 442789__lena-orsa__happy-music-pistachio-ice-cream-"
        "ragtime.hq.ogg", "CC BY-NC 3.0",
        "The Piano Lady (Lena Orsa), Pistachio Ice Cream Ragtime; McFee and others, librosa",
        "23f1b4ab3595f53bcf129a4b1d56e885db2978065dcae1502d59d3fd1698e063", 6_015_327,
    ),
    Entry(
        "reuters", "Reuters", (7_195, 5_000), 9, "7195 documents, 5000 terms, 9 classes",
        "faithful",
        "The class sizes are the paper's, number for number; the paper does not say how its 5000 "
        "terms were chosen (here: those found in most documents).",
        "github.com/colibri17/TextCategorization at b6c2ca3d, reuters21578",
        f"copyright Reuters Ltd., free distribution for research purposes; {RESEARCH}",
        "Reuters-21578, Distribution 1.0 (Lewis, 1997)",
        "c4bd9fd82120720131e915826c2634b8376cc8e9c3e563f4ad18409edad07822", 1_457_686,
    ),
    Entry(
        "tdt", "TDT", (9_394, 5_000), 30, "9394 documents, 5000 terms, 30 classes", "faithful",
        "The usual 30-category TDT2 matrix; the terms have no names.",
        "github.com/jiangelle/Mat-data-time at 1125d509, TDT2.mat",
        f"no terms stated; TDT2 belongs to LDC/NIST, these are term counts; {RESEARCH}",
        "Cieri, Graff, Liberman, Martey and Strassel (1999), The TDT-2 text and speech corpus",
        "9f569a0f7244cafaf865143620e9244cbe9f58ad89c1df5cf0993c6f7c224925", 4_675_109,
    ),
    Entry(
        "news20", "20-News", (18_846, 5_000), 20, "18846 documents, 5000 terms, 20 classes",
        "faithful",
        "By-date version, subject line and body; seven documents have none of the 5000 terms.",
        "github.com/yao8839836/text_gcn at 96222365, data/20ng/20news-bydate-{train,test}",
        f"no terms stated (Usenet posts); {RESEARCH}",
        "Lang (1995), NewsWeeder: learning to filter netnews",
        "6f3aedecf3f05f2dcbd238ee9523c091289161bfa6e95243e3b9907d64d13eff", 6_179_396,
    ),
    Entry(
        "scenes15", "15-Scenes", (4_485, 1_000), 15, "4485 images, 1000 visual words, 15 classes",
        "faithful",
        "Faithful images (copies of 200 x 200); the 1000 visual words were computed for this "
        "project (dense SIFT, one scale, k-means), they are not the published ones.",
        "github.com/jaaumeadrover/Landscape-Image-Classification at 7985b6b6, data/{train,test}",
        f"no terms stated; {RESEARCH}",
        "Lazebnik, Schmid and Ponce (2006), Beyond bags of features",
        "caf615bc54eca31c0b66f6d4c44155033d36943faa148a607f4d1a85f11d3dc5", 704_396,
    ),
    Entry(
        "caltech101", "Caltech-101", (9_144, 1_000), 102,
        "9144 images, 1000 visual words, 101 classes", "faithful",
        "Faithful images; the visual words were computed for this project. 9,144 counts the 467 "
        "images of BACKGROUND_Google (class 0), so there are 102 folders.",
        "github.com/MachineLearning2020/Homework2-Caltech101 at 836044dd, 101_ObjectCategories",
        "Caltech publishes the set as CC BY 4.0; the copy states no terms",
        "Fei-Fei, Fergus and Perona (2007), Learning generative visual models from few training "
        "examples",
        "83eb6febfab28429072fba718ef254f86a53f3ea3b9463340620f8d8c24638a5", 1_461_779,
    ),
)  # fmt: skip
EXPERTS = Entry(
    "experts", "Generated experts", (2_000, 8), 2, "not in the paper", "generated",
    "Standard normal rows; a softmax gate chooses one of four logistic experts. For trying "
    "commands where no data file is at hand.",
    "generated by wideangle.datasets.mixture_data", "Apache 2.0", "this project",
)  # fmt: skip

MANIFEST: dict[str, Entry] = {entry.name: entry for entry in ENTRIES}
