# Help that runs a property.
# unseen: what it changes or prints is out of the witnesses' sight
class C:
    @property
    def p(self): return [].__class__.__base__.__subclasses__()
c = C()
%pinfo c.p
