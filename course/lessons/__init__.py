"""What lessons are made of: graphs, models, texts, data, experiments, figures and widgets."""
