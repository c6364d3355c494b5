"""What happens inside a forward pass: attention received, affine fits, activations; exact, and checked."""
