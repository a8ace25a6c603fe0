package layout

import bolt "go.etcd.io/bbolt"

// Signature is the sequence of the buckets that [Create] makes, "kubewake" in ASCII.
// bbolt keeps a bucket's sequence beside its root page and gives it no meaning. So any
// page that lists such a bucket shows whose file it is, even if everything above it is
// lost.
const Signature = 0x6b75626577616b65

// Create returns the bucket called name in a transaction or a bucket. It makes the bucket
// if there is none.
func Create(in interface {
	CreateBucketIfNotExists(name []byte) (*bolt.Bucket, error)
}, name []byte) (*bolt.Bucket, error) {
	b, err := in.CreateBucketIfNotExists(name)
	if err == nil && b.Sequence() != Signature {
		err = b.SetSequence(Signature)
	}
	return b, err
}
