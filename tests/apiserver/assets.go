package apiserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// AssetsEnv names the environment variable with the folder of the binaries
// kube-apiserver, etcd and kubectl. If it is not set, they are taken from .build/kube of
// the repository that holds the working directory.
const AssetsEnv = "KUBEWAKE_ASSETS"

// ErrNoAssets says that the binaries have not been built.
var ErrNoAssets = errors.New("kube-apiserver, etcd or kubectl is missing: run make assets")

// assets returns the folder that holds both binaries.
func assets() (string, error) {
	if dir := os.Getenv(AssetsEnv); dir != "" {
		return dir, complete(dir)
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := wd; ; at = filepath.Dir(at) {
		dir := filepath.Join(at, ".build", "kube")
		if complete(dir) == nil {
			return dir, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%w (no .build/kube above %s)", ErrNoAssets, wd)
		}
	}
}

// Kubectl returns the path of kubectl, in the version of kube-apiserver.
func Kubectl() (string, error) {
	dir, err := assets()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "kubectl")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoAssets, err)
	}
	return path, nil
}

func complete(dir string) error {
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("%w: %w", ErrNoAssets, err)
		}
	}
	return nil
}
