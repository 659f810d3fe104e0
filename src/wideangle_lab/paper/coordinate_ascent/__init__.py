"""The paper's coordinate ascent."""
