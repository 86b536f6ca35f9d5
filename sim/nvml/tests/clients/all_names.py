"""Prints how many names nvidia-ml-py looks up, and those of them that the library does not have."""

import ctypes
import inspect
import re

import pynvml

library = ctypes.CDLL("libnvidia-ml.so.1")
looked_up = re.compile(r"_nvmlGetFunctionPointer\(\s*[\"'](nvml\w+)[\"']")
names = sorted(set(looked_up.findall(inspect.getsource(pynvml))))
print(len(names), [name for name in names if not hasattr(library, name)])
