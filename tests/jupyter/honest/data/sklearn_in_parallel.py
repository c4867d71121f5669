# Its parallel jobs are processes by default, which there are none of: they run one after the other.
import warnings
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.tree import DecisionTreeClassifier
x, y = load_iris(return_X_y=True)
assert cross_val_score(DecisionTreeClassifier(), x, y, cv=3, n_jobs=2).mean() > 0.8
search = GridSearchCV(DecisionTreeClassifier(), {"max_depth": [1, 3]}, n_jobs=2, cv=3).fit(x, y)
assert search.best_params_["max_depth"] == 3
assert cross_val_score(RandomForestClassifier(5), x, y, cv=3, n_jobs=-1).mean() > 0.8
