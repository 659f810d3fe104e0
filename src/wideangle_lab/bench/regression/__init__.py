"""Predictive distributions of quantities in real tables, compared with other regressors."""
