"""The text of the convergence study: running English prose out of one Debian package, as two files."""
import glob
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import unicodedata

# "An Anarchist FAQ": 10 MB of essays in plain sentences by a few authors, which is as much prose as any
# package of Debian holds. What it argues is of no concern here; how well its letters can be foretold is.
PACKAGE = "anarchism"
FILES = ["usr/share/doc/anarchism/markdown/sec*.md*", "usr/share/doc/anarchism/markdown/append*.md*"]
SHA256 = "ba3f074dae88ec19b447ac1552e024ebfc06d1fe8034c00462fa1ae45db5e51a"  # of both files, one after the other
PART_BYTES = 8192  # the text is cut into parts of about this length,
VALID_EVERY = 80  # and one of so many goes to validation, so that both files cover all of it

PLAIN = str.maketrans({"‘": "'", "’": "'", "‹": "'", "›": "'", "“": '"', "”": '"', "–": "-", "—": "-",
                       "…": "...", "£": "GBP "})


def paragraphs(markdown):
    """Sentences without markup, one paragraph a string, in ASCII."""
    text = unicodedata.normalize("NFKD", markdown.translate(PLAIN)).encode("ascii", "ignore").decode()
    text = re.sub(r"!?\[([^\]]*)\]\([^)\s]*\)", r"\1", text)  # [link](address)
    text = re.sub(r"(?m)^[>\s]*[>#*] +", "", text)  # quotations, headings, items of lists
    text = re.sub(r"\*\*|(?<!\w)_+|_+(?!\w)|\\(?=[^\w\s])", "", text)  # **bold**, _italic_, \-
    for paragraph in re.split(r"\n\s*\n", text):
        line = re.sub(r"\s+", " ", re.sub(r"(?<=\w)-\n", "-", paragraph)).strip()
        line = re.sub(r" ([,.;:!?])(?=[\s\"])", r"\1", line).replace("[ ", "[")
        if len(line) >= 80:  # what is shorter is a heading or a link
            yield line


def fetch(folder):
    """The package's files below `folder`, without installing it."""
    for tool in ("apt-get", "dpkg-deb"):
        if not shutil.which(tool):
            raise SystemExit(f"no {tool} here to fetch the text with: copy train.txt and valid.txt into the work "
                             "folder from a Debian machine, or put any text there and add --any-text")
    # as root, apt would become a user who may not write here, and warn about it
    subprocess.run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", PACKAGE], cwd=folder,
                   check=True)
    subprocess.run(["dpkg-deb", "-x", glob.glob(f"{folder}/*.deb")[0], folder], check=True)


def read(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as f:
        return f.read()


def make(work):
    """Writes train.txt and valid.txt into `work`."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        fetch(folder)
        names = sorted(name for pattern in FILES for name in glob.glob(f"{folder}/{pattern}"))
        seen, parts, part = set(), [], ""
        for name in names:
            for line in paragraphs(read(name)):
                if line not in seen:  # the same answer stands in several places
                    seen.add(line)
                    part += line + "\n\n"
                if len(part) >= PART_BYTES:
                    parts.append(part)
                    part = ""
    texts = {"train": [], "valid": []}
    for n, part in enumerate(parts):
        texts["valid" if n % VALID_EVERY == VALID_EVERY // 2 else "train"].append(part)
    for name, chosen in texts.items():
        with open(f"{work}/{name}.txt.part", "w", encoding="ascii") as f:
            f.write("".join(chosen))
        os.replace(f"{work}/{name}.txt.part", f"{work}/{name}.txt")


def ensure(work, any_text=False):
    """The sha256 of the two files in `work`, which are made if they are missing."""
    names = [f"{work}/train.txt", f"{work}/valid.txt"]
    if not all(os.path.exists(name) for name in names):
        make(work)
    digest = hashlib.sha256()
    for name in names:
        with open(name, "rb") as f:
            digest.update(f.read())
    sizes = [os.path.getsize(name) for name in names]
    print(f"text: {sizes[0]:,} bytes to train on, {sizes[1]:,} to validate on; sha256 {digest.hexdigest()}")
    if digest.hexdigest() != SHA256 and not any_text:
        raise SystemExit(f"the text in {work} is not the one that the results in the repository are from "
                         f"(sha256 {SHA256}): another version of the package '{PACKAGE}'? --any-text "
                         "takes it all the same; add --results FILE then, to write elsewhere")
    return digest.hexdigest()
