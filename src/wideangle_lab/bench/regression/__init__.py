"""Predictive distributions of quantities in real tables, beside other regressors."""
