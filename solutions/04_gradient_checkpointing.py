# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 04 Gradient checkpointing
#
# **How little can backward remember?**

# %%
import torch

from course import progress

torch.set_num_threads(1)  # the tensors here are tiny: a second thread costs more than it brings

# %% [markdown]
# ## A chain

# %%
progress()
