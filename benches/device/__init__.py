"""The pipeline of device tensors on emulated devices, against the model's bound; and packs."""
