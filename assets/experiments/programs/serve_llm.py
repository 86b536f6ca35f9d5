"""One of several servers that this project did not write: `transformers serve` over a folder with random weights.

    serve_llm.py GIB

Makes the folder (a Llama of about GIB, a tokenizer of numbered words) beside $START_FILE, once for all servers; starts the server on a
free port, writes the port to a file beside it, and says that it is ready when the model is loaded. Needs a GPU, PyTorch, and
transformers with what `transformers serve` needs.
"""
import fcntl
import socket
import subprocess
import sys
import time
import urllib.error
from pathlib import Path

from llm_http import MODEL, answer_of
from together import FOLDER


def make_folder(gib):
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {f"w{number}": number for number in range(32000)}
    plain = Tokenizer(models.WordLevel(words, unk_token="w0"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="w0", bos_token="w1", eos_token="w2", pad_token="w3")
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    layers = max(1, round(gib * 2**30 / (2 * 4096 * (4 * 4096 + 3 * 11008))))
    config = LlamaConfig(hidden_size=4096, num_hidden_layers=layers, num_attention_heads=32, num_key_value_heads=32, intermediate_size=11008,
                         vocab_size=len(words), bos_token_id=1, eos_token_id=2, pad_token_id=3)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    model.to_empty(device="cpu")
    torch.manual_seed(5)
    noise = torch.randn(1 << 28) * 0.02
    for number, weights in enumerate(model.parameters()):
        weights.data.copy_(noise[number:number + weights.numel()].view_as(weights))
    # Without an end each answer has the length that was asked for.
    model.generation_config = GenerationConfig(do_sample=False, bos_token_id=1, pad_token_id=3)
    model.save_pretrained(MODEL)
    tokenizer.save_pretrained(MODEL)


def is_loaded(port):
    """Asks for one token: the server loads the model for its first request."""
    try:
        with answer_of(port, tokens=1):
            return True
    except urllib.error.HTTPError as error:
        sys.exit(f"{error}: {error.read().decode(errors='replace')[:500]}")
    except OSError:
        return False


if len(sys.argv) > 2:
    make_folder(float(sys.argv[1]))
    sys.exit()
with open(FOLDER / "llm.lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not (MODEL / "tokenizer.json").exists():
        subprocess.run([sys.executable, __file__, sys.argv[1], "make"], check=True)
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
command = Path(sys.executable).with_name("transformers")
server = subprocess.Popen([command, "serve", "--host", "127.0.0.1", "--port", str(port), str(MODEL)], stdout=sys.stderr)
while not is_loaded(port):
    if server.poll() is not None:
        sys.exit(f"the server has ended with {server.returncode}")
    time.sleep(0.2)
(FOLDER / f"llm.{port}").touch()
print("ready", flush=True)
server.wait()
