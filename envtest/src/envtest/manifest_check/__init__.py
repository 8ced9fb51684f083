"""``envtest validate``: checks manifest files with the API server's own code, without starting a server.

* ``selection``: which files are checked, and why others are skipped;
* ``documents``: the objects in a file, and the lines of their fields;
* ``checker``: creates the objects in an API server without HTTP, and collects errors and warnings;
* ``repair``: takes values of a wrong type out, so that all problems of an object are found;
* ``removed_versions``: messages for API versions that are not served;
* ``report``: the output formats;
* ``command``: the command line.
"""
