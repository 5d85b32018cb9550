# One line per op: its folder, then the ops it calls.
mixtape_op(softmax)
mixtape_op(matmul)
mixtape_op(quantize)
mixtape_op(rms_norm)
mixtape_op(cross_entropy)
mixtape_op(elementwise)
mixtape_op(rope)
