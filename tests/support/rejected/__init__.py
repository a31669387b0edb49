"""What rankplan rejects: inputs, and the codes and words of their faults."""
