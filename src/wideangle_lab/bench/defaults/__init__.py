"""What a user gets who sets nothing: default fits of real tables, beside other classifiers."""
