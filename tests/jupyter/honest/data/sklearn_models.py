import numpy as np
from sklearn.datasets import load_iris, make_classification
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.linear_model import LogisticRegression
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier
x, y = load_iris(return_X_y=True)
assert make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y).score(x, y) > 0.9
forest = RandomForestClassifier(30, n_jobs=2, random_state=1).fit(x, y)
assert forest.score(x, y) > 0.9
assert HistGradientBoostingClassifier(max_iter=10).fit(x, y).score(x, y) > 0.9
assert KMeans(3, n_init=2, random_state=1).fit(x).inertia_ < 100
assert PCA(2).fit_transform(x).shape == (150, 2)
assert KNeighborsClassifier(n_jobs=2).fit(x, y).score(x, y) > 0.9
